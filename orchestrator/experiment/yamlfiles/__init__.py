"""What YAML files say, before anyone asks what it means; and the place of each mistake."""
