"""Code of users that is wrong in each line after the imports: mypy finds every one."""

from forebay import Client

Client().bucket(5)
Client().bucket("b").object("o").put(1)
size: str = Client().bucket("b").list_snapshot()[0][1]
Client(timeout="long")
Client().bucket("b").object("o").samples(keys="wds")
