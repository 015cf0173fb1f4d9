"""How answers look: tables, documents, names, JSONPath."""
