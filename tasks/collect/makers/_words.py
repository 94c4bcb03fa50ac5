"""Plain English words that the makers draw from; every list holds distinct entries."""

NAMES = tuple(
    "Ada Ben Cleo Dan Eva Finn Gus Hana Ida Jon Kai Lea Max Nia Omar Pia Quinn Rosa Sam Tess "
    "Uma Vic Wen Xena Yuri Zoe Amir Bea Carl Dora Elio Faye Gita Hugo Ines Jade Kofi Luna Mila "
    "Noah Olga Paul Rita Sven Tara Ugo Vera Will Yara Zane".split()
)

NOUNS = tuple(
    "ant apple arch arrow bag ball bank barn basket bath bean bear bed bee bell belt bench bird "
    "boat bone book boot bottle bowl box branch bread brick bridge brush bucket bus butter button "
    "cake camel camp candle candy cap car card carpet carrot cart castle cat chain chair chalk "
    "cheese cherry chest chicken circle city clay clock cloth cloud coal coast coat coffee coin "
    "comb cook copper cord corn cotton cow cream crow crown cup curtain desk dish dog door dove "
    "drawer dress drum duck eagle ear egg engine eye fan farm feather fence field finger fire "
    "fish flag flame floor flower fog fork forest fox frog fruit garden gate glass glove goat "
    "gold grape grass hammer hand harbor hat hill honey hook horn horse house ice ink iron island "
    "jacket jar jewel jug kettle key king kite kitten knee knife knot ladder lake lamp leaf lemon "
    "letter lid light lime lion lock loaf log map market mast match meadow melon metal milk mill "
    "mint mirror mist moon moss mountain mouse mug nail neck needle nest net night nose nut oak "
    "oar ocean oil onion orange oven owl page pail paint palm pan paper park parrot path peach "
    "pear pen pencil pepper piano picture pie pig pillow pin pine pipe plane plant plate plum "
    "pocket pond pool port pot powder prince purse queen quilt rabbit rail rain ring river road "
    "robin rock roof room root rope rose salt sand sail school sea seed sheep shelf shell ship "
    "shirt shoe shop shovel silk silver sky sled snail snake snow soap sock soup spade spider "
    "spoon spring square stamp star station steam stem stick stone store storm stove straw "
    "stream street string sugar suit summer sun swan table tail tea tent thread thumb ticket "
    "tiger tile toad toast tower town toy train tray tree truck trunk tub turtle valley vase "
    "vest village vine violin wagon wall watch water wave wax well whale wheat wheel whip "
    "whistle window wine wing winter wire wolf wood wool worm yard zebra".split()
)

ADJECTIVES = tuple(
    "big black blue bold brave bright broad brown calm clean clear cold cool dark deep dry early "
    "empty fair fast fine flat fresh full glad good grand gray great green happy hard heavy high "
    "hot huge kind large late lazy light little long loud low lucky mild narrow neat new old pale "
    "plain proud quick quiet rare red rich ripe rough round sharp short shy silent simple slim "
    "slow small smart smooth soft sour steep stiff still strong sweet tall tame thick thin tidy "
    "tiny tired warm weak wet white wide wild wise yellow young".split()
)

VERBS = tuple(
    "borrows brings buys carries cleans counts draws drops fetches finds fixes gives hides holds "
    "keeps leaves lends lifts likes loses makes mends moves needs opens packs paints picks sees "
    "sells sends shares shows stores takes throws trades wants washes watches".split()
)

CITIES = tuple(
    "Accra Athens Berlin Bogota Cairo Dakar Delhi Dublin Hanoi Havana Kyoto Lagos Lima Lisbon "
    "London Madrid Milan Nairobi Oslo Paris Porto Prague Quito Riga Rome Seoul Sofia Tallinn "
    "Tokyo Tunis Turin Vienna Warsaw Zagreb".split()
)
