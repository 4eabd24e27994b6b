"""The pages keep their word: what they name exists, what they show works, and what is generated is up to date."""
