"""The page of a study, beside what is published."""
