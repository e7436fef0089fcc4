"""From what came home to numbers: pure functions over files and tables."""
