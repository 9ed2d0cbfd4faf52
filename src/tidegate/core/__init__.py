"""What Tidegate decides: values in, values out, time as an argument. The world is behind `ports`.

Only the standard library, and pydantic for settings.
"""
