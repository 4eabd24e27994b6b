"""What revision 0002 installs on PostgreSQL, by subject. Frozen with it."""
