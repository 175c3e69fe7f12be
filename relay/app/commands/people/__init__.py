"""Commands about accounts and who stands behind them."""
