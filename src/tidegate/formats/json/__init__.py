"""JSON: `records` says what becomes of a record, `values` makes a value of a text, `decoding` is the fast way."""
