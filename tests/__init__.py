"""What every kind of test shares; the kinds are its subfolders."""
