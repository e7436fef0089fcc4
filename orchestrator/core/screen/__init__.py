"""Text for a screen: layout, control characters spelled out, similar lines joined."""
