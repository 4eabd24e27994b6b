"""The rules: (connection, caller, ...) -> record. One package per topic; knows no HTTP."""
