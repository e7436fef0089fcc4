"""Facts about nodes before they are measured."""
