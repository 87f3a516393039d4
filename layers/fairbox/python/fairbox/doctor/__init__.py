"""The checks of `fairbox doctor`: each looks at one thing of a deployment and gives advice."""
