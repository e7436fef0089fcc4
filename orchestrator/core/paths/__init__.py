"""Looks files up: beside the file that names them, below a folder of ours, in the package."""
