"""Tables: public schemas, encoding, named data sets, and cutting a table into clients."""
