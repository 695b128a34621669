import unittest

from shop.cart import Cart
from shop.customer import Customer


class TestCart(unittest.TestCase):
    def test_a_total_is_the_sum_of_its_prices(self):
        """Nothing is added and nothing is lost."""
        self.assertEqual(Cart(Customer("Ada"), [100, 50]).total(), 150)
