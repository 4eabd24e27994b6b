"""Stop words: the function words of a language, which say nothing about the subject of a query."""

import unicodedata
from collections.abc import Set


def _without_accents(listed: str) -> str:
    return "".join(mark for mark in unicodedata.normalize("NFD", listed) if not unicodedata.combining(mark))


_BY_LANGUAGE: dict[str, frozenset[str]] = {
    language: frozenset(_without_accents(listed).split())
    for language, listed in {
        "english": """a about after all also am an and any are as at be been before being both but by ca
            can could did do does doing done for from get had has have having he her here hers
            him his how i if in into is it its just me might more most my no not of on or our
            out over please s she should so some such t than that the their them then there
            these they this those to too up us was we were what when where which while who whom
            whose why will with wo would you your""",
        "german": """aber alle als also am an auch auf aus bei bin bis bitte da damit dann das dass dem
            den der des die dies diese dieser dieses doch du durch ein eine einem einen einer
            eines er es für gibt hat haben ich ihr ihre im in ist ja kann kein keine man mein
            meine mit nach nicht noch nur ob oder ohne sein seine sich sie sind so über um und
            uns unser vom von vor wann war waren warum was welche welcher welches wenn wer
            werden wie wir wird wo wurde wurden zu zum zur""",
        "french": """a à ai au aux avec avons c ce ces cet cette ceux comme comment d dans de des donc
            dont du elle elles en entre est et été être eu fait il ils j je l la le les leur
            leurs lui m ma mais me mes moi mon n ne nos notre nous on ont ou où par pas pour
            pourquoi qu quand que quel quelle quelles quels qui quoi s sa sans se ses son sont
            sur t ta te tes toi ton tu un une vos votre vous y""",
        "spanish": """a al algo como cómo con cual cuál cuales cuando cuándo de del desde donde dónde
            dos el él ella ellas ellos en entre era eran es esa ese eso esta está están este
            esto fue fueron ha hay la las le les lo los más me mi mis muy nos nuestro o para
            pero por porque qué que quien quién se ser si sin sobre son su sus también te tiene
            tu un una uno unos y ya yo""",
        "italian": """a ai al alla alle anche che chi ci come con cosa da dal dalla dei del della delle
            di dove e è ed era gli ha hanno ho i il in io la le lo loro ma mi nei nel nella non
            o per perché più quale quali quando questa questo se si sono su sua sul sulla suo ti
            tra tu un una uno""",
        "portuguese": """a ao aos as às até com como da das de dela dele do dos e é ela elas ele eles em
            entre era essa esse esta está este eu foi foram há isso isto já lhe mais mas me meu
            minha muito na não nas nem no nos nós o onde os ou para pela pelo por porque qual
            quando que quem se sem ser seu são sua também te tem um uma você""",
        "dutch": """aan al als bij dan dat de den der deze die dit doen door dus een en er geen had
            heb hebben heeft het hij hoe ik in is je kan maar me met mijn naar niet nog of om
            onder ons ook op over te tot uit u van voor waar waarom waren was wat we welke werd
            wie wij wordt ze zich zij zijn zo""",
        "russian": """а без бы был была были было быть в вам вас во вот все всё вы где да для до его ее
            её если есть еще ещё же за и из или им их к как какая какие какой когда который кто
            ли мне мы на над не него нее нет но о об он она они от по под почему при про с со
            так также там то только у уже что чтобы чем эта эти это этот я""",
    }.items()
}

# Question words and polite endings in scripts that are searched by pairs of characters.
_QUESTION_PAIRS = """
    什么 甚么 多少 哪些 哪个 哪里 哪儿 怎么 怎样 如何 为何 何时 是否 我们 你们 他们 這個 什麼 哪個
    哪裡 怎麼 です ます した して いる ある から まで とは どの どこ なに なん いつ だれ こと もの
    ため よう ので のは には では ました でし しょ うか すか たか るか 何で は何 か何 の何 무엇
    어디 언제 누구 어떤 입니 니다 니까 습니 까요
"""
_PAIRS = frozenset(_QUESTION_PAIRS.split())


def among(words: Set[str]) -> frozenset[str]:
    """Return the stop words of the language that fits the words best, English when there is no clear best."""
    best = max(_BY_LANGUAGE.values(), key=lambda listed: len(listed & words))
    return best | _PAIRS
