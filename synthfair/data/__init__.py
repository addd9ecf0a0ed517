"""Tables: public schemas, encoding, named data sets, and a table's partition into clients."""
