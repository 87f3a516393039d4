"""What `fairbox doctor` looks at: small checks of a deployment, each with its advice."""
