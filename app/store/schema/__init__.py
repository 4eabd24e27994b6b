"""Migrations, and what they install on each dialect."""
