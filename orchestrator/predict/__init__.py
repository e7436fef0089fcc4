"""Predict how long an iteration takes: Li's model of what ranks do, and its inputs with their source."""
