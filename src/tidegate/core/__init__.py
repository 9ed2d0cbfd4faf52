"""What Tidegate decides: values in, values out, time as an argument. The world is behind `state.ports`."""
