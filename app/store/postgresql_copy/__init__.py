"""Carries a whole database into an empty PostgreSQL: rows as they are, in an order that no guard refuses, and resumed.

The source must not change between two runs of one copy: a place in it is a number of rows.
"""
