"""What trainings and collective operations send by theory, framework by framework."""
