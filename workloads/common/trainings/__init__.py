"""What trainings of models of the catalog share, with emulated and with real compute."""
