"""A module for each gate, or for a few that judge the same thing: limits, help and judgement."""
