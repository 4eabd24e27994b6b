"""What it takes to change the tables of each dialect: a lock, one transaction, and a look at what stands."""
