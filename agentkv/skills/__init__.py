"""Skills: SKILL.md folders as manuals. Knows files and text; nothing of models."""
