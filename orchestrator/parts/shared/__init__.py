"""What several parts are made of: checks of names, rules that hit packets, offloads."""
