"""The report: figures from the tables, charts of the figures, one page of the charts."""
