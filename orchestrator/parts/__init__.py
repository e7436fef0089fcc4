"""What a part is made of, and how parts are found; collectors and conditions live here."""
