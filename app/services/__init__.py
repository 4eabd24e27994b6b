"""The verbs and all the rules: (connection, caller, …) -> record. One module per noun. Knows no HTTP."""
