"""Row-level security: what the server's role can see and do in PostgreSQL even if a service forgets the team."""
