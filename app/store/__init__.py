"""Storage: tables, transactions, tenant scope and full text. Knows no business rules and no HTTP."""
