"""Pure steps, DataFrame to DataFrame: they read no table and write none."""
