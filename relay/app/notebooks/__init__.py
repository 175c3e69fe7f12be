"""The Colab and Kaggle notebooks, and the functions that their cells call."""
