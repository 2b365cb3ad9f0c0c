"""Keys and trusted signers, under packs and evidence."""
