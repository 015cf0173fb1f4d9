"""``grange rc``: one module for each group of verbs; ``group`` lists them."""
