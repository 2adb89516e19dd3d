"""What travels between the parts: batches of columns, what models want to see of them, returns, sequences."""
