"""From a JSON schema or tools to a grammar, and from the text back to calls."""
