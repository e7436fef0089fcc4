"""From capture files to tables of conversations: stages that are compiled, and what reads through them."""
