"""The page of a study: our measurements beside what a paper prints."""
