"""Speaks HTTP and JSON, opens the transaction, holds no rules. One module per noun."""
