"""How rows are kept: tables, transactions, scope and full text. Knows no callers' rules, no HTTP."""
