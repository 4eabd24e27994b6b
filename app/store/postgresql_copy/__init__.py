"""Copies a whole database into an empty PostgreSQL: rows unchanged, in an order every constraint accepts, resumable.

The source must not change between two runs of one copy, because a position in it is a number of rows.
"""
