"""What an agent's memory is worth in a conversation: the benchmark ``agent``, its parts and its arms."""
