"""Reading and comparing mathematical answers exactly; no text is ever evaluated as code."""
