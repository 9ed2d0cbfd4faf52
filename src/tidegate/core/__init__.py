"""What Tidegate decides: values in, values out, time as an argument. Only the standard library; the world is behind `ports`."""
