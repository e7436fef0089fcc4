"""Text for a screen: laid out, without control characters, said once."""
