from shop.cart import total


def basket(prices):
    return f"basket: {total(prices)}"
