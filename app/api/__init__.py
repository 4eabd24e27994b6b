"""HTTP and JSON: parses requests, opens transactions and renders replies. Holds no business rules."""
